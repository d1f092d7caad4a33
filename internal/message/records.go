// SPDX-License-Identifier: Apache-2.0

package message

import "errors"

// errBroken says that an answer is not whole.
var errBroken = errors.New("the broker's answer holds a broken record")

// EachRecord calls take for every record of an answer, in order: those of body, and those of each of bodies. The
// records alias them. It ends at the first error.
func EachRecord(body []byte, bodies [][]byte, take func(Record) error) error {
	for i := -1; i < len(bodies); i++ {
		rest := body
		if i >= 0 {
			rest = bodies[i]
		}
		for len(rest) > 0 {
			size := Record(rest).Size()
			if size <= 0 || size > len(rest) || !Record(rest[:size]).IsWhole() {
				return errBroken
			}
			if err := take(Record(rest[:size:size])); err != nil {
				return err
			}
			rest = rest[size:]
		}
	}
	return nil
}
