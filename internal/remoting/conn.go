// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// A Conn is one native connection. It is the Peer of its calls and a Caller. One goroutine reads it;
// everything exported may be called from any goroutine.
type Conn struct {
	id     uint64
	eng    *engine
	via    *Listener // nil on a client's connection
	remote netip.AddrPort
	sock   net.Conn // what is closed and has the deadlines
	nc     net.Conn // what is read and written: sock, or the TLS on it
	raw    rawIO    // not open when nc is no plain TCP socket: then every write is a writer goroutine's
	read   reading
	out    outgoing // has its own lock, called Conn.mu in comments

	state connState
}

// connState is what several goroutines must see of a connection without its lock.
type connState struct {
	open   atomic.Int32 // calls in flight that are not held
	gated  atomic.Bool  // the reader waits for open to fall
	active atomic.Int64 // unix nanoseconds of the last read, or of the janitor's last look after a write
	ended  atomic.Bool  // outgoing.err is set
	wrote  atomic.Bool  // something was written since the janitor looked
	full   atomic.Bool  // the reader must wait for the peer to take answers
	burst  atomic.Bool  // the reader has more frames at hand and flushes after them
}

// reading is the part of a connection that belongs to its reader.
type reading struct {
	in    inbuf
	need  int               // bytes the next frame needs, as far as known
	cmd   *protocol.Command // decoded into during a burst
	gate  chan struct{}     // of capacity 1, made when first waited on
	begun int64             // unix nanoseconds: since when the input is one unfinished frame; 0: it is not
	due   atomic.Int64      // by when that frame must be whole, 0 without one; read by the janitor
	hurry atomic.Int64      // by when it must be while others wait for the read memory it holds; 0: it holds none
}

func newConn(eng *engine, nc net.Conn, via *Listener) *Conn {
	c := &Conn{id: eng.reg.NextPeerID(), eng: eng, via: via, sock: nc, nc: nc, remote: AddrPort(nc.RemoteAddr())}
	c.raw.bind(c)
	c.state.active.Store(time.Now().UnixNano())
	return c
}

// ID returns the connection's identity among the peers of this process.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the client's address, the one a PROXY header named if there was one. It is the zero
// AddrPort when the connection is no TCP connection.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Close ends the connection. Calls in flight are executed all the same, their answers are dropped.
func (c *Conn) Close() { c.shut(ErrConnClosed) }

// Closed reports whether the connection has ended.
func (c *Conn) Closed() bool { return c.state.ended.Load() }

// serve reads and executes frames until the connection ends, then cancels what is left. It returns the cause.
func (c *Conn) serve() error {
	err := c.readLoop()
	c.shut(err)
	c.teardown()
	return c.out.cause()
}

func (c *Conn) readLoop() error {
	for {
		need, err := c.execute(time.Now())
		c.endBurst()
		if err != nil {
			return err
		}
		c.read.need = need
		if err := c.makeRoom(); err != nil {
			return err
		}
		if due, hurry := c.frameDue(); due != c.read.due.Load() || hurry != c.read.hurry.Load() {
			c.read.due.Store(due)
			c.read.hurry.Store(hurry)
		}
		if err := c.readMore(); err != nil {
			return err
		}
	}
}

const (
	slowestFrame = 64 << 10 // how slowly a frame may come, in bytes a second, besides twice the FrameTimeout
	hurryFactor  = 16       // how much sooner it must be whole while others wait for the memory it holds
)

// frameDue returns by when the frame that has begun must be whole, and by when while read memory is scarce; 0 when
// none has, or it holds none.
func (c *Conn) frameDue() (due, hurry int64) {
	in := &c.read.in
	if len(in.data) == 0 {
		return 0, 0
	}
	if c.read.begun == 0 {
		c.read.begun = time.Now().UnixNano()
	}
	patience := int64(2*c.eng.limits.FrameTimeout) + int64(c.read.need)*int64(time.Second)/slowestFrame
	if in.booked > 0 || in.turn {
		hurry = c.read.begun + patience/hurryFactor
	}
	return c.read.begun + patience, hurry
}

// execute dispatches all complete frames at hand. need is how long the input must become before there is
// another.
func (c *Conn) execute(now time.Time) (need int, err error) {
	c.state.active.Store(now.UnixNano())
	for {
		if c.state.full.Load() {
			c.waitForPeer()
		}
		if c.state.ended.Load() { // what it still asks, nobody will hear the answer to
			return 0, ErrConnClosed
		}
		frame, need, err := c.read.in.next(c.eng.limits.MaxFrameBytes)
		if frame == nil && err == nil && len(c.read.in.data) >= 2*lengthBytes {
			err = protocol.CheckHead(c.read.in.data[lengthBytes:], need-lengthBytes) // at once, not when it is whole
		}
		if frame == nil || err != nil {
			return need, err
		}
		c.read.begun = 0
		c.state.burst.Store(c.read.in.more())
		if err := c.handle(frame, now); err != nil {
			return 0, err
		}
	}
}

// endBurst writes what the burst's calls answered and gives the scratch back.
func (c *Conn) endBurst() {
	c.state.burst.Store(false)
	c.flush()
	if c.read.cmd != nil {
		c.eng.pools.scratch.Put(c.read.cmd)
		c.read.cmd = nil
	}
}

// aboutToWait is called on the reader before it waits for anything but input: answers must not wait with it.
func (c *Conn) aboutToWait() {
	c.state.burst.Store(false)
	c.flush()
}

// makeRoom sees to it that a frame larger than a chunk has room within the server's read memory. To wait for that is
// not the peer's slowness.
func (c *Conn) makeRoom() error {
	if !c.read.in.mustGrow(c.read.need) {
		return c.eng.fitFrame(&c.read.in, c.read.need)
	}
	c.read.hurry.Store(0)
	since := time.Now()
	err := c.eng.fitFrame(&c.read.in, c.read.need)
	if c.read.begun > 0 {
		c.read.begun += int64(time.Since(since))
	}
	return err
}

// readMore reads once.
func (c *Conn) readMore() error {
	in := &c.read.in
	var n int
	var err error
	if c.raw.open() {
		n, err = c.raw.read()
	} else {
		in.private(c.read.need)
		n, err = c.nc.Read(in.room())
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	if n > 0 {
		err = nil // the error, if it lasts, comes again
		in.data = in.data[:len(in.data)+n]
	}
	in.last = n
	return err
}

// handle executes one frame.
func (c *Conn) handle(frame []byte, now time.Time) error {
	if c.read.cmd == nil {
		c.read.cmd, _ = c.eng.pools.scratch.Get().(*protocol.Command) // a pool holds nothing else
	}
	cmd := c.read.cmd
	if err := cmd.Decode(frame); err != nil {
		return err
	}
	if cmd.IsResponse() {
		c.read.cmd = nil // the waiter keeps it
		c.resolve(cmd)   // an answer that nobody asked for tells nobody anything
		return nil
	}
	call := &Call{
		Code: protocol.Code(cmd.Code), Opaque: cmd.Opaque, Version: cmd.Version, Language: cmd.Language,
		Protocol: ProtocolRemoting, OneWay: cmd.IsOneWay(), Ext: &cmd.Ext, Body: cmd.Body, Peer: c,
		Via: c.via, Received: now, Deadline: now.Add(c.eng.limits.CallTimeout), conn: c, serialize: cmd.Serialize,
	}
	call.place.bytes = int64(len(frame))
	c.admit(call)
	return nil
}

// admit dispatches a call, once the connection may have another in flight.
func (c *Conn) admit(call *Call) {
	open := int(c.state.open.Add(1))
	switch {
	case open > c.eng.limits.MaxCallsPerConn && !c.waitForCalls(call.Deadline):
		c.eng.reg.refuse(c.eng.ctx, call, c.tooManyCalls())
	case c.eng.draining.Load() && call.Version > protocol.VersionV5_3_1 && !call.OneWay:
		c.eng.reg.refuse(c.eng.ctx, call, &protocol.Error{Code: protocol.GoAway, Remark: "please go away"})
	default:
		c.eng.reg.Dispatch(c.eng.ctx, call)
	}
}

// callEnded is called when a call in flight has ended or is held from now on.
func (c *Conn) callEnded() {
	c.state.open.Add(-1)
	if c.state.gated.Load() {
		c.openGate()
	}
}

func (c *Conn) openGate() {
	select {
	case c.read.gate <- struct{}{}:
	default:
	}
}

// waitForCalls holds the reader until the connection has fewer calls in flight than it may, the deadline at
// most.
func (c *Conn) waitForCalls(deadline time.Time) bool {
	c.aboutToWait()
	if c.read.gate == nil {
		c.read.gate = make(chan struct{}, 1)
	}
	c.state.gated.Store(true) // publishes the gate
	defer c.state.gated.Store(false)
	late := time.After(time.Until(deadline))
	for int(c.state.open.Load()) > c.eng.limits.MaxCallsPerConn {
		if c.state.ended.Load() { // after gated was set: whoever ends the connection sees one or the other
			return false
		}
		select {
		case <-c.read.gate:
		case <-late:
			return false
		}
	}
	return true
}

func (c *Conn) tooManyCalls() *protocol.Error {
	return protocol.Errorf(protocol.SystemBusy,
		"[OVERLOAD]system busy, start flow control for a while, this connection: %d calls in flight, "+
			"limit %d", c.state.open.Load(), c.eng.limits.MaxCallsPerConn)
}

// teardown ends what the connection's end leaves open. It runs once, on the reader, after shut.
func (c *Conn) teardown() {
	c.read.in.giveBack(&c.eng.chunks)
	c.eng.releaseFrame(&c.read.in)
	held, requests := c.out.takeAll()
	for _, p := range held {
		p.call.Cancel(ErrConnClosed)
	}
	for _, r := range requests {
		if r.timer != nil {
			r.timer.Stop()
		}
		r.done(nil, ErrConnClosed)
	}
}

// ordinaryEnd reports whether a connection's end needs no attention.
func ordinaryEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, ErrConnClosed) || errors.Is(err, ErrIdle) ||
		errors.Is(err, ErrServerClosed) || isReset(err)
}

func (c *Conn) logEnd(err error) {
	if ordinaryEnd(err) {
		c.eng.log.Debug("connection ended", slog.Any("remote_addr", c.remote), slog.Any("error", err))
		return
	}
	c.eng.tarpit.blame(c.remote.Addr(), time.Now())
	c.eng.log.Warn("connection closed for its fault", slog.Any("remote_addr", c.remote),
		slog.Any("error", err))
}
