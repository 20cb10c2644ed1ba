class Owned: pass
