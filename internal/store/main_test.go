// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Pebble leaves this goroutine behind when its Open fails.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"))
}
