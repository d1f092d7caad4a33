// SPDX-License-Identifier: Apache-2.0

//go:build !race

package broker

// raceEnabled: see race_on_test.go.
const raceEnabled = false
