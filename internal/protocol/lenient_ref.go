// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"strconv"
)

// fastjson 1 (clients up to 5.3) writes an object, map or array that it meets a second time as
// {"$ref":"$.a.b[0]"}, the path from the body's root to where it was written out. For example, two topics of
// CreateTopicListRequestBody that share their attributes. fastjson 2 writes no references but reads them.

const refKey = `"$ref"`

// refJump is a jump from a reference to its target; zero when there was none.
type refJump struct {
	resume int // behind the reference
	target int
}

// follow moves to the target when a reference stands here, and behind the reference when it leads nowhere:
// found is false then. The caller reads the target and calls back.
func (r *lenient) follow() (jump refJump, found bool) {
	if r.peek() != '{' {
		return refJump{}, false
	}
	path := r.refPath()
	if path == nil || !r.open('{') {
		return refJump{}, false
	}
	for r.more('}') {
		r.key()
		r.skip()
	}
	target := lenient{data: r.data}
	if r.failed || !target.walk(path) {
		r.spendRef(target.pos)
		return refJump{resume: r.pos}, false
	}
	jump = refJump{resume: r.pos, target: target.pos}
	if r.depth >= maxBodyDepth {
		r.fail("nested more than " + strconv.Itoa(maxBodyDepth) + " levels deep")
	}
	if r.spendRef(target.pos); r.failed {
		return jump, false
	}
	r.depth++
	r.pos = jump.target
	return jump, true
}

// back returns to behind a reference whose target was read.
func (r *lenient) back(jump refJump) {
	if jump.resume == 0 || r.failed {
		return
	}
	if r.spendRef(r.pos - jump.target); r.failed {
		return
	}
	r.pos = jump.resume
	r.depth--
}

// spendRef counts bytes that were read a second time.
func (r *lenient) spendRef(n int) {
	if r.refBytes += n; r.refBytes > maxRefScanBytes {
		r.fail("references cost more than " + strconv.Itoa(maxRefScanBytes) + " bytes")
	}
}

// refPath returns the path when the object at the position is a reference, that is, when its first field is a
// $ref that looks like a path; else nil. A map may well have a key of that name.
func (r *lenient) refPath() []byte {
	if next := r.pos + 2; next < len(r.data) && r.data[next-1] == '"' && r.data[next] != '$' {
		return nil // nearly every object
	}
	ahead := lenient{data: r.data, pos: r.pos + 1}
	if ahead.peek(); !bytes.HasPrefix(r.data[ahead.pos:], []byte(refKey)) {
		return nil
	}
	ahead.key()
	if ahead.peek() != '"' {
		return nil
	}
	path := ahead.quoted()
	switch {
	case ahead.failed || len(path) == 0:
		return nil
	case path[0] == '$' && (len(path) == 1 || path[1] == '.' || path[1] == '['):
		return path
	case string(path) == "@" || string(path) == "..": // the object itself, its parent: cycles, which lead nowhere
		return path
	}
	return nil
}

// walk moves from the root to the value at the path, which is $ and then steps of .name or [index].
func (r *lenient) walk(path []byte) bool {
	if path[0] != '$' {
		return false
	}
	path = path[1:]
	for len(path) > 0 && !r.failed {
		step := path[0]
		path = path[1:]
		switch step {
		case '.':
			var name []byte
			name, path = refName(path)
			if !r.enterField(name) {
				return false
			}
		case '[':
			end := bytes.IndexByte(path, ']')
			if end < 0 {
				return false
			}
			index, err := strconv.Atoi(string(path[:end]))
			if err != nil || !r.enterElement(index) {
				return false
			}
			path = path[end+1:]
		default:
			return false
		}
	}
	c := r.peek()
	return !r.failed && (c == '{' || c == '[')
}

// refName splits the name off a path. A backslash takes the next byte's meaning away.
func refName(path []byte) (name, rest []byte) {
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '\\':
			for i < len(path) && path[i] == '\\' {
				i++
			}
			if i < len(path) {
				name = append(name, path[i])
			}
		case '.', '[':
			return name, path[i:]
		default:
			name = append(name, path[i])
		}
	}
	return name, nil
}

func (r *lenient) enterField(name []byte) bool {
	if !r.open('{') {
		return false
	}
	for r.more('}') {
		if bytes.Equal(r.key(), name) {
			return !r.failed
		}
		r.skip()
	}
	return false
}

func (r *lenient) enterElement(index int) bool {
	if !r.open('[') {
		return false
	}
	for ; r.more(']'); index-- {
		if index == 0 {
			return true
		}
		r.skip()
	}
	return false
}
