"""Every setting once. What the environment may set is read here, and described in docs/settings.md."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from kombu import Queue

from config.env import Environment, fernet_keys
from config.kept import kept

env = Environment(os.environ)

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"
VERSION = "0.1.0"


# --- Where it listens and how it is reached --------------------------------------------------------------------------

HOST = env.text("HOST", "127.0.0.1", help="Address that `make run` listens on.")
PORT = env.integer("PORT", 8000, low=1, high=65535, help="Port that `make run` listens on.")

# A wildcard is an address to listen on, not one to reach something at.
_reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(HOST, HOST)  # noqa: S104
PUBLIC_URL = env.url(
    "PUBLIC_URL",
    f"http://[{_reachable}]:{PORT}" if ":" in _reachable else f"http://{_reachable}:{PORT}",
    shown="http://HOST:PORT",
    help="Where the outside reaches Rewake: the start of every capability URL that is handed out.",
)
_public = urlsplit(PUBLIC_URL)
_https = _public.scheme == "https"
_public_host = f"[{_public.hostname}]" if ":" in str(_public.hostname) else str(_public.hostname)

ALLOWED_HOSTS = list(
    dict.fromkeys(
        [
            f"[{HOST}]" if ":" in HOST else HOST,
            _public_host,
            "localhost",
            "127.0.0.1",
            "[::1]",
            *env.listing("ALLOWED_HOSTS", help="Further names that requests may come for; `*` allows any."),
        ]
    )
)
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]
DEBUG = env.boolean("DEBUG", False, help="Shows details of errors to whoever causes them. Never in production.")


# --- Database --------------------------------------------------------------------------------------------------------

_EMBEDDED_FILE = VAR_DIR / "rewake.sqlite3"
_embedded = not env.given("DATABASE_URL")
_database = env.database(
    "DATABASE_URL",
    f"sqlite:///{_EMBEDDED_FILE}",
    shown="sqlite:///var/rewake.sqlite3",
    help="The database: an SQLite file, or `postgres://user:password@host:port/name`; "
    "a Unix socket's folder is written in place of the host, its slashes as `%2F`.",
)
if _database["ENGINE"].endswith("sqlite3"):
    _database["OPTIONS"] = {
        # A writer that read first cannot wait for its turn in WAL: so every transaction starts as a writer.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        # FULL, not NORMAL: under WAL, NORMAL syncs at checkpoints only, and a power cut would take back commits
        # that were already answered with 202.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
    }
    _database["CONN_MAX_AGE"] = None  # a new connection for each turn would cost more than beginning it
    # Transcripts lie there: for their owner's eyes only.
    Path(_database["NAME"]).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
else:
    # A new connection for each request costs a factor of eight. Under ASGI each closes its own (config/asgi.py).
    _database["CONN_MAX_AGE"] = 600
    _database["CONN_HEALTH_CHECKS"] = True
    _database.setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
DATABASES: dict[str, dict[str, Any]] = {"default": _database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# --- Secrets ---------------------------------------------------------------------------------------------------------


def _required(name: str, how: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is not set, and DATABASE_URL is: set it too, to {how}")


def _new_fernet_key() -> str:
    return Fernet.generate_key().decode("ascii")


SECRET_KEY = env.secret(
    "SECRET_KEY",
    least=50,
    shown="made once and kept in var/secret_key while DATABASE_URL is unset; else required",
    help="Signs console sessions. At least 50 characters.",
)
ENCRYPTION_KEYS = env.fernet_keys(
    "ENCRYPTION_KEYS",
    shown="made once and kept in var/encryption_keys while DATABASE_URL is unset; else required",
    help="Fernet keys between commas: the first encrypts, all decrypt. To rotate, put a new key first.",
)
if not SECRET_KEY:
    if not _embedded:
        raise _required("SECRET_KEY", "50 or more random characters, the same in every process")
    SECRET_KEY = kept(VAR_DIR / "secret_key", lambda: secrets.token_urlsafe(48))
if not ENCRYPTION_KEYS:
    if not _embedded:
        raise _required("ENCRYPTION_KEYS", "one or more Fernet keys between commas, the same in every process")
    try:
        ENCRYPTION_KEYS = fernet_keys(kept(VAR_DIR / "encryption_keys", _new_fernet_key))
    except ValueError as error:
        raise ImproperlyConfigured(f"{VAR_DIR / 'encryption_keys'} must hold {error}") from None

REWAKE_API_KEY = env.secret(
    "REWAKE_API_KEY",
    least=20,
    shown="one is made and printed once, at the first start",
    help="Creates an API key of scope `admin` with this value at the first start. At least 20 characters.",
)
REWAKE_ADMIN_PASSWORD = env.secret(
    "REWAKE_ADMIN_PASSWORD",
    shown="one is made and printed once, at the first start",
    help="Password of the console's user `admin`, who is created at the first start.",
)


# --- Triggers --------------------------------------------------------------------------------------------------------

TRIGGERS_ENABLED = env.boolean(
    "TRIGGERS_ENABLED", False, help="Offers triggers to agents and fires them. `make run` sets it to true."
)
TRIGGERS_TICK_INTERVAL_SECONDS = env.number(
    "TRIGGERS_TICK_INTERVAL_SECONDS",
    0.25,
    low=0.01,
    high=60,
    help="Seconds: the longest sleep of the beat, which is how late a wake can be when every ring is lost.",
)
TRIGGERS_POLL_INTERVAL_SECONDS = env.number(
    "TRIGGERS_POLL_INTERVAL_SECONDS", 60, low=0.05, high=86400, help="Seconds between two questions to the same forge."
)
TRIGGERS_MAX_CONSECUTIVE_FAILURES = env.integer(
    "TRIGGERS_MAX_CONSECUTIVE_FAILURES",
    5,
    low=1,
    high=1000,
    help="Failures in a row (polls that failed, wakes that were quarantined) after which a trigger ends as `failed`.",
)
TRIGGERS_MAX_ARMED_PER_SESSION = env.integer(
    "TRIGGERS_MAX_ARMED_PER_SESSION", 20, low=1, high=100000, help="Armed triggers that one session may have at a time."
)
TRIGGERS_MAX_FIRES_CAP = env.integer(
    "TRIGGERS_MAX_FIRES_CAP", 100, low=1, high=1000000, help="The highest `max_fires`, and the one of who gives none."
)
TRIGGERS_DEFAULT_EXPIRY_DAYS = env.number(
    "TRIGGERS_DEFAULT_EXPIRY_DAYS",
    7,
    low=0.001,
    high=3650,
    help="Days from arming to expiry where no `expires_at` is given; for `time.at`, from its instant.",
)
TRIGGERS_CRON_MIN_INTERVAL_SECONDS = env.integer(
    "TRIGGERS_CRON_MIN_INTERVAL_SECONDS",
    60,
    low=1,
    high=31536000,
    help="Seconds: the tightest gap that a `time.cron` schedule may have anywhere.",
)
TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES = env.integer(
    "TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES",
    200000,
    low=1,
    high=25 * 1024 * 1024,
    help="Bytes of a webhook's body that are kept; a longer body still fires and is marked `truncated`.",
)
TRIGGERS_MAX_CHAIN_DEPTH = env.integer(
    "TRIGGERS_MAX_CHAIN_DEPTH",
    50,
    low=1,
    high=1000000,
    help="Turns in a row that wake one another before no more triggers can be armed; a person's message starts anew.",
)


# --- Forges ----------------------------------------------------------------------------------------------------------

FORGE_HOSTS = env.hosts(
    "FORGE_HOSTS",
    "github.com=github:https://api.github.com",
    forges=sorted(
        file.stem for file in (BASE_DIR / "triggers" / "forges").glob("*.py") if file.stem not in ("__init__", "base")
    ),
    help="Forges that triggers may look at, as `name=forge:base URL`; `manage.py forge_host add` adds more.",
)
FORGE_TOKENS = env.tokens(
    "FORGE_TOKENS", help="Tokens of forges, as `name=token` between commas; they go before those that are stored."
)
FORGE_HOSTS_UNVERIFIED = [
    name.lower()
    for name in env.listing(
        "FORGE_HOSTS_UNVERIFIED", help="Names out of FORGE_HOSTS whose TLS certificates are not verified."
    )
]


# --- Agents ----------------------------------------------------------------------------------------------------------

AGENT_MODEL = env.text(
    "AGENT_MODEL",
    "rehearsal",
    help="Model of a session that names none: `rehearsal`, or a name that pydantic-ai knows, such as `openai:gpt-4o`.",
)
AGENT_MAX_TRIGGERED_TURNS_PER_HOUR = env.integer(
    "AGENT_MAX_TRIGGERED_TURNS_PER_HOUR",
    60,
    low=1,
    high=100000,
    help="Triggered turns of one session in an hour; over it, wakes wait. A person's message never does.",
)
AGENT_TURN_LEASE_SECONDS = env.integer(
    "AGENT_TURN_LEASE_SECONDS",
    60,
    low=1,
    high=3600,
    help="Seconds without a sign of life after which a turn counts as lost; a live turn renews its lease.",
)
AGENT_TURN_TIMEOUT_SECONDS = env.integer(
    "AGENT_TURN_TIMEOUT_SECONDS", 3600, low=1, high=604800, help="Seconds that one turn may take."
)
AGENT_WAKE_MAX_ATTEMPTS = env.integer(
    "AGENT_WAKE_MAX_ATTEMPTS", 3, low=1, high=100, help="Lost turns after which the wakes they took are quarantined."
)


# --- Applications ----------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "sessions.apps.SessionsConfig",
    "triggers.apps.TriggersConfig",
    "console.apps.ConsoleConfig",
    "config.apps.RewakeConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.shortcut.capability_urls",
    "config.static.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"
APPEND_SLASH = False  # a redirect would turn a POST into a GET; each route says which forms it takes
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True  # the console's files are served from where they lie: nothing to collect
WHITENOISE_AUTOREFRESH = DEBUG


# --- People and browsers ---------------------------------------------------------------------------------------------

LOGIN_URL = "/console/login/"
LOGIN_REDIRECT_URL = "/console/"
LOGOUT_REDIRECT_URL = LOGIN_URL
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Names of our own: cookies do not know ports, and another Django on localhost would overwrite them.
SESSION_COOKIE_NAME = "rewake_session"
CSRF_COOKIE_NAME = "rewake_csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "config.errors.stale_form"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
if _https:
    # Rewake speaks plain HTTP: where it is reached by https, a proxy stands before it and sets this header.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)/?$"]  # asked from within, past the proxy
    SECURE_HSTS_SECONDS = 31536000
# Sub-domains and browsers' preload lists are for whoever owns the domain to decide, not for one service in it.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]


# --- REST ------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["config.api.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["config.api.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["config.api.JsonBody"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "config.api.JsonOnly",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is answered 405, like any method that a route does not have
    "URL_FORMAT_OVERRIDE": None,
    "DEFAULT_SCHEMA_CLASS": "config.openapi.DoorSchema",
    "EXCEPTION_HANDLER": "config.errors.error_response",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Rewake",
    "DESCRIPTION": "A durable trigger engine for AI agent sessions.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "config.openapi.add_plain_routes"],
    "ENUM_NAME_OVERRIDES": {
        "SessionStatus": "config.openapi.SESSION_STATUSES",
        "TriggerStatus": "config.openapi.TRIGGER_STATUSES",
        "WakeStatus": "config.openapi.WAKE_STATUSES",
        "ArmedOrPaused": "config.openapi.ARMED_OR_PAUSED",
        "TerminatedStatus": "config.openapi.TERMINATED",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}


# --- Celery ----------------------------------------------------------------------------------------------------------
# The state is in the database and the broker is a doorbell: a message says "look", and the beat says it again.

BROKER_URL = env.broker(
    "BROKER_URL",
    "memory://",
    help="The message broker: `memory://` within one process, else `redis://…` or `amqp://…` (RabbitMQ).",
)
CELERY_BROKER_URL = "memory://localhost" if BROKER_URL == "memory://" else BROKER_URL  # kombu warns of no host
# How long a commit's ring may hold up the one who committed when the broker is dead: two seconds at most, and nothing
# where the broker refuses. kombu takes the first four for whoever publishes; a worker goes on trying.
CELERY_BROKER_CONNECTION_TIMEOUT = 1
_brief: dict[str, Any] = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
_broker_kind = {"rediss": "redis", "amqps": "amqp"}.get(urlsplit(BROKER_URL).scheme, urlsplit(BROKER_URL).scheme)
_by_broker: dict[str, dict[str, Any]] = {
    "memory": {"polling_interval": 0.01},  # kombu's own second would be the latency of every wake
    # No visibility timeout: it is for messages that are acknowledged late, and none is.
    "redis": {"socket_connect_timeout": 1, "socket_timeout": 2, "retry_on_timeout": False},
}
CELERY_BROKER_TRANSPORT_OPTIONS = _brief | _by_broker.get(_broker_kind, {})
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for its broker, however long that takes
CELERY_TASK_PUBLISH_RETRY = True
# One more try, at once: what it mends is a pooled connection that died unnoticed.
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}
# All queues are declared, so that a worker without -Q serves them all. The routing keys are needed: without them
# Celery binds every queue to the default key and delivers each message to all. `poll` waits for forges: a queue of
# its own, so that neither the clock nor a turn ever waits for one.
CELERY_TASK_QUEUES = tuple(Queue(name, routing_key=name) for name in ("short", "long", "poll"))
CELERY_TASK_DEFAULT_QUEUE = "short"
CELERY_TASK_DEFAULT_ROUTING_KEY = "short"
CELERY_TASK_ROUTES = {"sessions.run": {"queue": "long"}, "triggers.poll": {"queue": "poll"}}
CELERY_TASK_IGNORE_RESULT = True  # and no result backend: what came of it is in the database
# Acknowledged on receipt. A late acknowledgement would have the broker hold messages for as long as a turn lasts
# and hand them out again; the lease in the database does that, and knows whether it is needed.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # a long turn must not sit on rings that another worker could answer
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "triggers.beat:DueScheduler"


# --- Logs ------------------------------------------------------------------------------------------------------------

LOG_FORMAT = env.text(
    "LOG_FORMAT", "text", choices=["text", "json"], help="Form of a log line: `key=value` text, or JSON."
)
LOG_LEVEL = env.text(
    "LOG_LEVEL",
    "INFO",
    choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
    help="The least weighty log lines that are written.",
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"mask": {"()": "sessions.secrecy.MaskSecrets"}},
    "formatters": {"text": {"()": "config.logs.KeyValue"}, "json": {"()": "config.logs.Json"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["mask"]},
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # Django's own handlers would write each line twice and mail errors to nobody.
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        # A line or two for each request that we make, or each ring that we answer, would bury all others.
        "httpx": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "uvicorn": {"level": "WARNING"},
    },
}
