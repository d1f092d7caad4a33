// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// seedFlag repeats a random test.
var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: another one each time")

// rewrite makes the tests write what they see into testdata. Read the difference before it is committed.
var rewrite = flag.Bool("rewrite", false, "write the transcripts of testdata anew")

// childPort and childDir, in the environment, make the test binary a server, so that it can be killed.
const (
	childPort = "ROQUET_CONFORMANCE_PORT"
	childDir  = "ROQUET_CONFORMANCE_DIR"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(childPort); port != "" {
		os.Exit(child(port, os.Getenv(childDir)))
	}
	goleak.VerifyTestMain(m)
}

// child serves until its input ends, which is when its parent does, and tells when it listens.
func child(port, dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	svc, err := newService(port, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		cancel()
	}()
	go func() {
		<-svc.Listening()
		fmt.Println(listening)
	}()
	if err := svc.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
