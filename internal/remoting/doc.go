// SPDX-License-Identifier: Apache-2.0

// Package remoting is the native door and the table behind every door: listeners that recognise what a
// connection speaks, RemotingCommand frames in and out, the registry from request code to processor, lanes
// that bound the work in flight, hooks that watch it, and requests that the server sends to its clients. It
// knows no broker.
//
// # The way of a request
//
// One goroutine reads a connection. It cuts frames out of what one read brought (a burst), decodes each into
// a scratch Command, makes a Call of it and hands that to Registry.Dispatch, which runs the hooks, takes a
// place in the code's Lane and runs the Processor: on the same goroutine when the lane is inline, on one of
// the lane's workers otherwise. The processor, or whoever it gives the Call to, calls Reply exactly once; no
// goroutine waits for it. The answer is encoded straight into the connection's outgoing buffer.
//
// # Who writes
//
// Nobody owns the socket's sending side for good. What has gathered in the outgoing buffer is written by one
// non-blocking write of whoever flushes: the reader at the end of a burst, the goroutine that replied, or,
// for answers given with ReplyLater, the caller of Server.FlushPending, once for a whole batch of them. Only
// what the socket does not take at once is left to a goroutine that lives until the buffer is empty. See
// docs/adr/0004.
//
// # Buffers
//
// Frames are read into chunks which are never written twice: bodies and strings may alias them for as long as
// anybody likes, and the garbage collector takes them. A connection that waits for bytes holds no chunk, so
// an idle connection costs its goroutine's stack and a few hundred bytes.
//
// # Locks
//
// Conn.mu guards a connection's outgoing buffer, its held calls and the requests sent to its peer. Lane.mu
// and flushList.mu are leaves: they may be taken under Conn.mu, never the other way round. No lock
// is held while a hook, a processor, a callback or a system call runs.
package remoting
