// SPDX-License-Identifier: Apache-2.0

// Package transaction decides what happens to half messages that nobody has decided about: when a producer is
// asked, how often, when to give up, and who may act on a half message at the moment. It is a core without a
// world: no I/O, no clock, no goroutine. Its owner tells it what happened with [Core.Step] and does what
// comes back.
//
//	h := transaction.New(cfg)
//	for _, action := range h.Step(time.Now(), transaction.Event{Kind: transaction.Stored, Half: half}) { … }
//
// A half message is open from Stored until Deleted; both are told from what the log's applier applied, so the
// core knows what is durable and nothing else. While it is open at most one holds it: a check that is on its
// way, a parking, or whoever made a Claim and was answered Grant. The holder says Finished; until then
// everyone else waits in order. So the first decision wins, and a message is never asked about while it is
// being decided.
package transaction
