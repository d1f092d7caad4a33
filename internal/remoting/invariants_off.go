// SPDX-License-Identifier: Apache-2.0

//go:build !invariants

package remoting

// invariants is off: broken promises of our own code are logged and counted.
const invariants = false
