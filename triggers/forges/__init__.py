"""One file a forge: what to ask it, how to read its answer. Found by scanning this folder."""
