// SPDX-License-Identifier: Apache-2.0

// Package commitlog is the commit log: the one file of truth that everything else is derived from. Callers
// append groups of records; one committer goroutine seals what gathered into an entry, writes it with
// tidwall/wal, makes it durable with one sync and hands it on in log order: first to Handler.Apply, then to
// each group's Done.
//
//	Append ─→ open batch ─→ committer: seal, wal.Write, sync ─→ ring ─→ Apply ─→ Done … ─→ Settled
//
// What a caller may rely on:
//   - Acknowledged means durable. Done(first, nil) comes after the sync (FlushDiskType Sync). After Done(0, err) the
//     group is nowhere in the log, and never will be.
//   - A group is stored whole or not at all: it lies inside one entry, and an entry has one checksum.
//   - Reads return only what is durable, applied order or not, and only bytes whose checksum was verified.
//   - After a failed write or sync the log refuses to write, says why in Health, and goes on reading. It resumes by
//     itself once the log has been closed, cut back to its last durable byte and read again from the disk.
//   - Repair removes an entry that was cut off at the very end of the log, and nothing else, ever. Anything else that
//     does not fit is reported as *CorruptError.
//
// A log position (message.LogOffset) counts the bytes of the segment files since the log's birth,
// tidwall/wal's length prefixes included. So a record lies in its file at its position minus that of the
// segment. The bytes are described in docs/format/commitlog.md, the choices in
// docs/adr/0002-commit-log-on-tidwall-wal.md.
package commitlog
