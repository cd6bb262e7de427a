"""One commit applied to the state: a handler for each kind of edit, and the rules that it must keep. No I/O."""
