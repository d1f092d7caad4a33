// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/roquetmq/roquet/internal/backup"
	"github.com/roquetmq/roquet/internal/protocol"
)

// checkpointPattern names the folders in which what is being sent is linked.
const checkpointPattern = "checkpoint-*"

// backupRequests sends the broker's data to whoever may have it. The code BACKUP_STORE, which is roquet's own, only
// answers whether the caller may: the data goes the way that its door has for streams.
type backupRequests struct{ *node }

// send writes a backup as a tar stream, without the files that the caller has: a JSON array of backup.File, or
// nothing.
func (s backupRequests) send(ctx context.Context, w io.Writer, have []byte) (err error) {
	var there []backup.File
	if len(have) > 0 {
		if err := json.Unmarshal(have, &there); err != nil {
			return protocol.Errorf(protocol.InvalidParameter, "the body is no JSON array of files: %s", err.Error())
		}
	}
	dir, err := os.MkdirTemp(s.settings.load().Store.Dir, checkpointPattern)
	if err != nil {
		return fmt.Errorf("make a folder for the checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := backup.Checkpoint(ctx, s.store, s.settings.load().Store.Dir, dir)
	if err != nil {
		return err
	}
	m.Version, m.Broker = s.version, s.self.brokerName
	return backup.Send(ctx, w, m, dir, there)
}

// removeCheckpoints removes what a killed process left; it would keep dropped segments on the disk.
func removeCheckpoints(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, checkpointPattern))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
