"""One file a kind of trigger. Found by scanning this folder."""
