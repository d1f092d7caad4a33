// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package remoting

import (
	"errors"
	"net"
)

// rawIO is not available here: every connection reads blocking and writes through a writer goroutine.
type rawIO struct{}

func (*rawIO) bind(*Conn) {}

func (*rawIO) open() bool { return false }

func (*rawIO) read() (int, error) { return 0, errors.ErrUnsupported }

func (*rawIO) write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func isReset(err error) bool { return errors.Is(err, net.ErrClosed) }
