// Package sqlite keeps the engine's documents and event log in one SQLite database (modernc.org/sqlite, no C
// compiler). It implements event.Log, session.Store, run.Store, agent.Store, file.Store and store.Values.
//
// How it writes. One connection writes, owned by one goroutine, the committer. Every write, of the log and of
// documents alike, waits in a queue; the committer drains what waits into one transaction and one sync of the disk,
// so that many writers share the price of durability. A group holds at most one chunk of each run, each write is
// judged alone, and no judgement leaves before the COMMIT is durable (journal_mode WAL, synchronous FULL). A caller
// that gives up only withdraws its own write, and only while the write still waits.
//
// How it fails. A full disk refuses new work, loses nothing and heals by itself; a reserve file lets what must be
// written to end runs still be written. An I/O error while writing means that nobody knows what the disk holds: the
// store is poisoned, every later call fails with ErrPoisoned, and Dead is closed so that the process can exit. The
// next Open recovers from the write-ahead log and checkpoints it before it serves.
package sqlite
