"""Ask and tell for people: candidates, the ledger of what became of them, the model of their
values."""
