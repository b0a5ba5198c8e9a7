"""One file an adapter: how a session's agent is invoked. Found by scanning this folder."""
