// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package remoting

// invariants makes a broken promise of our own code a panic.
const invariants = true
