// SPDX-License-Identifier: Apache-2.0

//go:build race

package broker

// raceEnabled says that sync.Pool drops what it is given at random, so that allocations cannot be counted.
const raceEnabled = true
