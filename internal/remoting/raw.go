// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// rawIO reads and writes a TCP socket without blocking for want of room. Reading takes room only when there
// is something to read, so that a waiting connection needs none; writing takes what the socket takes. The two
// directions are independent; each is used by one goroutine at a time (the reader; whoever set
// outgoing.busy). The zero value is not open.
type rawIO struct {
	rc      syscall.RawConn
	readFn  func(fd uintptr) bool
	writeFn func(fd uintptr) bool
	n       int // of the last read
	err     error
	out     []byte // to be written
	outN    int
	outErr  error
}

// bind opens the connection's rawIO if its socket allows. The two callbacks are made once, so that no read or
// write allocates one.
func (r *rawIO) bind(c *Conn) {
	tcp, ok := c.sock.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	r.rc = rc
	r.readFn = func(fd uintptr) bool { return c.raw.tryRead(int(fd), c) }
	r.writeFn = func(fd uintptr) bool { return c.raw.tryWrite(int(fd)) }
}

func (r *rawIO) open() bool { return r.rc != nil }

// read waits for input and puts it behind the connection's input, whose length the caller adjusts.
func (r *rawIO) read() (int, error) {
	if err := r.rc.Read(r.readFn); err != nil {
		return 0, err
	}
	return r.n, r.err
}

// tryRead reads once; false means that there was nothing and that the poller is to wait.
func (r *rawIO) tryRead(fd int, c *Conn) bool {
	in := &c.read.in
	in.reserve(&c.eng.chunks, c.read.need)
	for {
		n, err := syscall.Read(fd, in.room())
		switch {
		case err == nil && n == 0:
			r.n, r.err = 0, io.EOF
		case err == nil:
			r.n, r.err = n, nil
		case errors.Is(err, syscall.EAGAIN):
			in.rest(&c.eng.chunks, c.read.need)
			return false
		case errors.Is(err, syscall.EINTR):
			continue
		default:
			r.n, r.err = 0, err
		}
		return true
	}
}

// write writes what the socket takes of b without waiting.
func (r *rawIO) write(b []byte) (int, error) {
	r.out = b
	err := r.rc.Write(r.writeFn)
	r.out = nil
	if err != nil {
		return 0, err
	}
	return r.outN, r.outErr
}

func (r *rawIO) tryWrite(fd int) bool {
	for {
		n, err := syscall.Write(fd, r.out)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			r.outN, r.outErr = 0, nil
		case err != nil:
			r.outN, r.outErr = 0, err
		default:
			r.outN, r.outErr = n, nil
		}
		return true
	}
}

// isReset reports whether the peer went away in the ways peers do.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, net.ErrClosed)
}
