// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far long work is: on standard error, when that is a terminal and the work is long.
type progress struct{ bar *progressbar.ProgressBar }

// progress begins to show it. The whole is -1 when nobody knows it.
func (c *call) progress(whole int64, unit string) progress {
	file, ok := c.cmd.ErrOrStderr().(*os.File)
	seen := ok && term.IsTerminal(int(file.Fd()))
	return progress{progressbar.NewOptions64(whole, progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(seen), progressbar.OptionSetDescription(unit), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionThrottle(200*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(false))}
}

// What cannot be shown of it does not end the work.

func (p progress) add(n int) { _ = p.bar.Add(n) }

func (p progress) at(done, whole int64) {
	p.bar.ChangeMax64(whole)
	_ = p.bar.Set64(done)
}
func (p progress) end() { _ = p.bar.Finish() }
