"""A writer of bank transfers in SQLite: sqlite_writer.py write|verify DATABASE LOG MODE [SEED].

`write` goes on until the file system dies; after each COMMIT (synchronous=EXTRA) it appends the
transaction's number to LOG on the host. `verify` wants PRAGMA integrity_check to be ok, every number in LOG to
be in the table, numbers without gaps, and the sum of all balances to be what it was at the beginning.
"""
import os
import random
import sqlite3
import sys

ACCOUNTS, BALANCE = 500, 1000


def connect(path, mode):
    base = sqlite3.connect(path, isolation_level=None, timeout=30)
    got = base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
    if got.lower() != mode.lower():
        sys.exit(f"journal mode {mode} refused: {got}")
    # FULL would not do: with a rollback journal it does not sync the removal that makes the commit.
    base.execute("PRAGMA synchronous=EXTRA")
    return base


def write(path, log, mode, seed):
    rng = random.Random(seed)
    base = connect(path, mode)
    if not base.execute("SELECT 1 FROM sqlite_master WHERE name = 'account'").fetchone():
        base.executescript(
            "BEGIN; CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER);"
            "CREATE TABLE done(number INTEGER PRIMARY KEY, note BLOB); CREATE INDEX by_note ON done(note);"
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ACCOUNTS})"
            f" INSERT INTO account SELECT i, {BALANCE} FROM n; COMMIT;"
        )
    number = base.execute("SELECT coalesce(max(number), 0) FROM done").fetchone()[0]
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while True:
            number += 1
            amount = rng.randint(1, 100)
            source, target = rng.sample(range(1, ACCOUNTS + 1), 2)
            base.execute("BEGIN IMMEDIATE")
            base.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (amount, source))
            base.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (amount, target))
            base.execute("INSERT INTO done VALUES (?, ?)", (number, rng.randbytes(rng.randint(10, 2000))))
            base.execute("COMMIT")
            os.write(out, b"%d\n" % number)
    except sqlite3.DatabaseError as error:
        # A dead file system shows as many different errors; that nobody stops before the crash is
        # for the campaign to see.
        print(error, file=sys.stderr)


def verify(path, log, mode):
    base = connect(path, mode)
    sound = [row[0] for row in base.execute("PRAGMA integrity_check")]
    total = base.execute("SELECT sum(balance) FROM account").fetchone()[0]
    there = {row[0] for row in base.execute("SELECT number FROM done")}
    with open(log, encoding="ascii") as file:
        said = {int(line) for line in file}
    problems = []
    if sound != ["ok"]:
        problems.append(f"integrity_check: {sound[:5]}")
    if total != ACCOUNTS * BALANCE:
        problems.append(f"balances sum up to {total}, not {ACCOUNTS * BALANCE}")
    if said - there:
        problems.append(f"{len(said - there)} acknowledged transactions are missing, such as {min(said - there)}")
    if there != set(range(1, len(there) + 1)):
        problems.append("numbers have gaps")
    if len(there - said) > 1:
        problems.append(f"{len(there - said)} transactions are there that were never acknowledged")
    # The one that was committed but not yet acknowledged is settled now.
    with open(log, "a", encoding="ascii") as file:
        file.writelines(f"{number}\n" for number in sorted(there - said))
    print(f"{len(there)} transactions, {len(said)} acknowledged")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:6])
    else:
        verify(*sys.argv[2:5])
