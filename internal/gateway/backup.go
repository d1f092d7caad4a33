// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// maxHaveBytes bounds the list of files that a client has.
const maxHaveBytes = 256 << 20

// backup answers POST /v1/backup with the broker's data: see internal/backup.
func (d *door) backup(w http.ResponseWriter, r *http.Request) {
	if _, err := d.call(r.Context(), protocol.BackupStore, nil, nil); err != nil {
		d.fail(w, err)
		return
	}
	have, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHaveBytes))
	if err != nil {
		d.fail(w, readError(err))
		return
	}
	out := &patientWriter{w: w, out: http.NewResponseController(w)}
	_ = out.out.SetReadDeadline(time.Time{}) // as in door.stream
	err = d.cfg.Backup(r.Context(), out, have)
	switch {
	case err != nil && !out.begun:
		d.fail(w, err)
	case err != nil: // the stream has no manifest, and so is no backup
		d.log.Warn("could not send a backup", slog.Any("error", err))
	}
}

// patientWriter gives the client streamPatience for each piece, and the whole as long as it takes.
type patientWriter struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	begun bool
}

// Write implements io.Writer.
func (p *patientWriter) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/x-tar")
		p.w.Header().Set("Cache-Control", "no-store")
	}
	_ = p.out.SetWriteDeadline(time.Now().Add(streamPatience)) // as in door.stream
	return p.w.Write(b)
}
