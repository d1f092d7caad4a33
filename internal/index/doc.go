// SPDX-License-Identifier: Apache-2.0

// Package index answers where things are in the commit log: queue offset → position (the ConsumeQueue), key →
// positions, and the current value of every state record. It is a deterministic function of the log and may
// be thrown away at any time: delete its folder and it is rebuilt by replay.
//
// # What is where
//
// Queue entries gather in memory in chunks of 128 (chunk.go). A checkpoint writes what is new, and the
// position that it covers, as one Pebble batch; what is full and written leaves memory. Keys gather in memory
// too, and every checkpoint writes them to one sidecar file (sidecar.go), which is deleted when the log has
// dropped that range. State goes into Pebble as it is applied (state.go). Pebble runs without its own log:
// the commit log is the log.
//
// # Invariants
//
//   - Pebble flushes whole batches in the order of their commit, so what a crash leaves is a prefix of the batches.
//   - A checkpoint for position P holds all queue changes before P and none after, and is committed behind all
//     state before P; its sidecars are durable before it. So after a crash queues and keys are exactly those of
//     Applied.
//   - State may be newer than Applied; its replay ends in the same values. High says how new it may be.
//   - In memory: min <= persisted <= next of each queue; entries from persisted on are in memory, those below are in
//     Pebble, and recent ones in both.
//   - Sidecars cover [first, Applied) without holes, or MissingKeys names the holes.
//
// # Goroutines and locks
//
// The applier changes, anyone reads. A checkpoint runs in a goroutine of its own, at most one at a time;
// Close waits for it. Lock order: background, topics, Queue.mu; state.mu and keys.mu are taken with none of
// the others held inside them.
package index
