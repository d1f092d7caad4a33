// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/protocol"
)

// A Route is one line of the table of request codes.
type Route struct {
	Code      protocol.Code
	Lane      *Lane
	FastLane  *Lane // for calls through a fast listener; nil: the code is refused there
	Processor Processor
}

// RegistryConfig has what a Registry needs besides its routes.
type RegistryConfig struct {
	// MapError turns an error that is no *protocol.Error into the answer the client gets. It logs what it
	// must. Nil: the answer is SYSTEM_ERROR with the error's text.
	MapError func(error) *protocol.Error
	Hooks    []Hook    // nil entries are skipped
	Wrappers []Wrapper // the first is the outermost
	Logger   *slog.Logger
}

// directCodes is how many of the lowest codes are found by index. All hot native codes are among them.
const directCodes = 512

// A Registry is the table from request code to processor and lane that every door ends in. It does not change
// after NewRegistry and is safe for concurrent use.
type Registry struct {
	cfg    RegistryConfig
	log    *slog.Logger
	hooks  hooks
	direct [directCodes]*entry
	other  map[protocol.Code]*entry
	lanes  []*Lane

	peerID atomic.Uint64
}

// entry is a route with its processor wrapped.
type entry struct {
	route   Route
	process Processor
}

// NewRegistry builds the table. It fails, with all faults at once, when a route is incomplete or a code
// occurs twice.
func NewRegistry(cfg RegistryConfig, routes []Route) (*Registry, error) {
	r := &Registry{
		cfg:   cfg,
		log:   cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		other: map[protocol.Code]*entry{},
	}
	r.hooks.add(cfg.Hooks)
	var faults []error
	for _, route := range routes {
		if err := r.add(route); err != nil {
			faults = append(faults, err)
		}
	}
	return r, errors.Join(faults...)
}

func (r *Registry) add(route Route) error {
	switch {
	case route.Lane == nil:
		return fmt.Errorf("route %s: no lane", route.Code)
	case route.Processor == nil:
		return fmt.Errorf("route %s: no processor", route.Code)
	case r.find(route.Code) != nil:
		return fmt.Errorf("route %s: declared twice", route.Code)
	}
	e := &entry{route: route, process: route.Processor}
	for _, wrap := range slices.Backward(r.cfg.Wrappers) {
		e.process = wrap(e.process)
	}
	if route.Code >= 0 && route.Code < directCodes {
		r.direct[route.Code] = e
	} else {
		r.other[route.Code] = e
	}
	for _, lane := range []*Lane{route.Lane, route.FastLane} {
		if lane != nil && !slices.Contains(r.lanes, lane) {
			r.lanes = append(r.lanes, lane)
		}
	}
	return nil
}

func (r *Registry) find(code protocol.Code) *entry {
	if code >= 0 && code < directCodes {
		return r.direct[code]
	}
	return r.other[code]
}

// Supports reports whether the table has the code.
func (r *Registry) Supports(code protocol.Code) bool { return r.find(code) != nil }

// NextPeerID returns an identity for a new peer. It never returns the same twice.
func (r *Registry) NextPeerID() uint64 { return r.peerID.Add(1) }

// Dispatch executes a call, once. It returns when the processor has returned, or, on a pooled lane, when a
// worker has the call; the call may end later. It waits for the lane's place when the lane is full, so doors
// call it on a goroutine that may wait, and a client's sender is slowed down. Every call that is dispatched
// ends, and all hooks see both its ends.
func (r *Registry) Dispatch(ctx context.Context, c *Call) {
	r.begin(ctx, c)
	e := r.find(c.Code)
	if e == nil {
		c.Fail(notSupported(c.Code))
		return
	}
	lane := e.route.Lane
	if c.Via != nil && c.Via.Fast {
		if lane = e.route.FastLane; lane == nil {
			c.Fail(notSupported(c.Code))
			return
		}
	}
	if !r.enter(lane, c) {
		return
	}
	if lane.cfg.Workers > 0 {
		if c.conn != nil {
			c.scratch, c.conn.read.cmd = c.conn.read.cmd, nil // for a worker to read
		}
		lane.submit(e, c)
		return
	}
	e.run(c)
}

// refuse is Dispatch for a call that is not to be executed: it ends with err, and all hooks see both its ends.
func (r *Registry) refuse(ctx context.Context, c *Call, err error) {
	r.begin(ctx, c)
	c.Fail(err)
}

func (r *Registry) begin(ctx context.Context, c *Call) {
	c.reg = r
	c.ctx = r.hooks.before(ctx, c)
}

// enter takes a place in the lane for the call, or ends the call with SYSTEM_BUSY.
func (r *Registry) enter(lane *Lane, c *Call) bool {
	if c.place.bytes == 0 {
		c.place.bytes = int64(len(c.Body)) + 1
	}
	if !lane.tryEnter(c.place.bytes) {
		if c.conn != nil {
			c.conn.aboutToWait()
		}
		waited, ok := lane.enter(c.place.bytes, c.Deadline, c.ctx.Done())
		switch {
		case ok:
		case c.ctx.Err() != nil:
			c.Cancel(c.ctx.Err())
			return false
		default:
			c.Fail(lane.busy(waited))
			return false
		}
	}
	c.place.lane = lane
	return true
}

// notSupported is the answer to a code that is not in the table, worded as the original's.
func notSupported(code protocol.Code) *protocol.Error {
	remark := " request type " + strconv.Itoa(int(code)) + " not supported"
	if code.Known() {
		remark += " (" + code.String() + ")"
	}
	return &protocol.Error{Code: protocol.RequestCodeNotSupported, Remark: remark}
}

// run executes the processor on this goroutine.
func (e *entry) run(c *Call) {
	defer func() {
		if v := recover(); v != nil {
			c.reg.panicked(c, v)
		}
	}()
	e.process(c.ctx, c)
}

// runPooled executes the processor on a lane's worker. A processor that answered with ReplyLater on the spot,
// since there was nothing to wait for, is not followed by a flush of anybody else's.
func (e *entry) runPooled(c *Call) {
	e.run(c)
	if c.scratch != nil {
		c.conn.eng.pools.scratch.Put(c.scratch)
	}
	if c.conn != nil {
		c.conn.eng.pending.flush()
	}
}

// panicked answers a call whose processor panicked, if it had not been answered before.
func (r *Registry) panicked(c *Call, v any) {
	r.log.Error("processor panicked", slog.String("request_code", c.Code.String()),
		slog.Any("remote_addr", c.Peer.RemoteAddr()), slog.Any("error", v),
		slog.String("stack", string(debug.Stack())))
	remark := fmt.Sprintf("internal error in %s: %v", c.Code, v)
	c.tryEnd(&Response{Code: protocol.SystemError, Remark: remark}, false)
}

func (r *Registry) mapError(err error) *protocol.Error {
	if wire, ok := errors.AsType[*protocol.Error](err); ok {
		return wire
	}
	if r.cfg.MapError != nil {
		return r.cfg.MapError(err)
	}
	return &protocol.Error{Code: protocol.SystemError, Remark: err.Error()}
}

// repliedTwice reports a bug of a processor.
func (r *Registry) repliedTwice(c *Call, second *Response) {
	r.log.Error("call answered twice", slog.String("request_code", c.Code.String()),
		slog.String("response_code", second.Code.String()), slog.String("stack", string(debug.Stack())))
}
