// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"time"
)

// watchDisk looks at the disk until ctx is done, and gives back what filtered walks have mapped and no longer use. It
// is a goroutine of its own so that neither slow deletes nor slow writes delay the look.
func (l *Log) watchDisk(ctx context.Context) {
	tick := time.Tick(l.cfg.Disk.Interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			l.lookAtDisk()
			l.mapped.forgetUnused(time.Now().Unix() - trustSeconds)
		}
	}
}

// lookAtDisk compares the disk with its marks, and begins or ends refusing writes.
func (l *Log) lookAtDisk() {
	e, err := l.usage()
	if err != nil {
		l.log.Debug("cannot tell how full the disk is", "error", err)
		return
	}
	full := e.UsedPercent >= float64(e.LimitPercent) || e.FreeBytes < e.ReserveBytes
	var was bool
	l.pend.change(func(p *pending) {
		was, p.marks = p.marks != nil, nil
		if full {
			p.marks = e
		}
	})
	switch {
	case full && !was:
		l.log.Error("the disk is full: writes are refused, reads go on; free some space or add disk",
			"path", e.Path, "used_percent", e.UsedPercent, "limit_percent", e.LimitPercent,
			"free_bytes", e.FreeBytes, "reserve_bytes", e.ReserveBytes)
	case !full && was:
		l.log.Info("there is room on the disk again: writes are accepted",
			"path", e.Path, "used_percent", e.UsedPercent, "free_bytes", e.FreeBytes)
	}
}

// usage returns the state of the disk in the form of the error that it may become; without what is used and free when
// the disk does not tell. The share is that of RocketMQ: used of what ordinary users can have.
func (l *Log) usage() (*DiskFullError, error) {
	marks := l.cfg.Disk
	e := &DiskFullError{Path: l.cfg.Dir, LimitPercent: marks.FullPercent, ReserveBytes: marks.ReserveBytes}
	u, err := l.cfg.FS.GetDiskUsage(l.cfg.Dir)
	if err != nil {
		return e, err
	}
	e.FreeBytes = int64(u.AvailBytes)
	if all := u.UsedBytes + u.AvailBytes; all > 0 {
		e.UsedPercent = 100 * float64(u.UsedBytes) / float64(all)
	}
	return e, nil
}

// Explain makes a *DiskFullError of an error that says that there is no space left; others stay as they are.
func (l *Log) Explain(err error) error {
	if isDiskFull(err) {
		return l.diskFull(err)
	}
	return err
}

// diskFull is the refusal after an operation failed for want of space.
func (l *Log) diskFull(cause error) *DiskFullError {
	e, _ := l.usage() // says what the disk tells
	e.Cause = cause
	return e
}
