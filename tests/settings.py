"""The product's settings as tests see them: the same wherever the suite is run, whatever the shell holds."""

import os
import tempfile
from pathlib import Path

PREFIXES = ("TRIGGERS_", "AGENT_", "REWAKE_", "LOG_", "CELERY_", "DATABASE_", "BROKER_", "FORGE_")
OURS = {"HOST", "PORT", "PUBLIC_URL", "ALLOWED_HOSTS", "DEBUG", "SECRET_KEY", "ENCRYPTION_KEYS"}

# Only the database that tests.servers (or who runs the suite) made for tests is one.
_database_url = os.environ.get("DATABASE_URL", "")
if _database_url != os.environ.get("TEST_DATABASE_URL"):
    _database_url = ""
for _name in [name for name in os.environ if name.startswith(PREFIXES) or name in OURS]:
    del os.environ[_name]
os.environ |= {
    "TRIGGERS_ENABLED": "true",
    "DATABASE_URL": _database_url,
    "SECRET_KEY": "only-for-tests-" + "0123456789" * 4,
    "ENCRYPTION_KEYS": "dGVzdHMgb25seSwgbm90IGEgcmVhbCBrZXksIDMyYnk=",
}

from config.settings import *  # noqa: E402, F403
from config.settings import DATABASES  # noqa: E402

# Processes that tests start are the product itself, in this environment.
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, as in the product: SQLite's shared memory locks otherwise, and ignores the timeout.
    _folder = tempfile.TemporaryDirectory(prefix="rewake-test-", ignore_cleanup_errors=True)
    DATABASES["default"]["TEST"] = {"NAME": str(Path(_folder.name) / "test.sqlite3")}
    DATABASES["default"]["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
else:
    DATABASES["default"]["TEST"] = {"NAME": f"test_rewake_{os.getpid()}"}

# Tests make users by the dozen, and none of them is worth a slow hash.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
