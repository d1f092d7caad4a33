// SPDX-License-Identifier: Apache-2.0

package pop

// deadlines is a heap of spans, the one that is due first on top. Each span knows its place.
type deadlines []*span

// fix puts s where its due belongs; one that is never due is not in the heap.
func (d *deadlines) fix(s *span) {
	switch {
	case s.due == never && s.at < 0:
	case s.due == never:
		d.remove(s)
	case s.at < 0:
		s.at = len(*d)
		*d = append(*d, s)
		d.up(s.at)
	default:
		d.down(d.up(s.at))
	}
}

func (d *deadlines) remove(s *span) {
	h := *d
	i, last := s.at, len(h)-1
	h.swap(i, last)
	h[last] = nil
	*d = h[:last]
	s.at = -1
	if i < last {
		d.down(d.up(i))
	}
}

func (d deadlines) swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].at, d[j].at = i, j
}

// up moves the span at i up to its place, which it returns.
func (d deadlines) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if d[parent].due <= d[i].due {
			break
		}
		d.swap(i, parent)
		i = parent
	}
	return i
}

// down moves the span at i down to its place.
func (d deadlines) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(d); child++ {
			if d[child].due < d[least].due {
				least = child
			}
		}
		if least == i {
			return
		}
		d.swap(i, least)
		i = least
	}
}
