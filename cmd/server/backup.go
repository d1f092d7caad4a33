// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roquetmq/roquet/internal/backup"
)

func bucketFlags(flags *pflag.FlagSet) *backup.S3 {
	s3 := &backup.S3{}
	flags.StringVar(&s3.Endpoint, "s3-endpoint", "", "host:port of the buckets; that of AWS when left out")
	flags.StringVar(&s3.Region, "s3-region", "", "region of the bucket; it is asked for when left out")
	flags.BoolVar(&s3.Insecure, "s3-insecure", false, "reach the buckets without TLS")
	return s3
}

// transfer has do work with a target, and shows how far it is and what came of it.
func (c *call) transfer(
	location string, s3 *backup.S3, do func(backup.Target, backup.Progress) (*backup.Manifest, error),
) error {
	target, err := backup.OpenTarget(location, *s3)
	if err != nil {
		return err
	}
	bar := c.progress(-1, "bytes")
	m, err := do(target, bar.at)
	bar.end()
	if err != nil {
		return err
	}
	return c.show(m, "")
}

// backupCommand takes a backup of a running broker.
func backupCommand(r *remote) *cobra.Command {
	var s3 *backup.S3
	cmd := r.verb("backup DEST", "Back a running broker up to a folder or s3://bucket/prefix", cobra.ExactArgs(1),
		func(c *call) error {
			request := func(ctx context.Context, have []byte) (io.ReadCloser, error) {
				resp, err := c.Open(ctx, http.MethodPost, "/v1/backup", have)
				if err != nil {
					return nil, err
				}
				return resp.Body, nil
			}
			return c.transfer(c.args[0], s3, func(t backup.Target, p backup.Progress) (*backup.Manifest, error) {
				return backup.Take(c, t, request, p)
			})
		})
	s3 = bucketFlags(cmd.Flags())
	r.addFlags(cmd.Flags())
	return cmd
}

// restoreCommand makes a data folder of the newest backup.
func restoreCommand() *cobra.Command {
	var s3 *backup.S3
	c := &call{remote: &remote{}}
	short := "Make a data folder, empty or missing, of the newest backup in a folder or s3://bucket/prefix"
	cmd := local("restore SOURCE DIR", short, cobra.ExactArgs(2), func(cmd *cobra.Command, args []string) error {
		c.cmd = cmd
		return c.transfer(args[0], s3, func(t backup.Target, p backup.Progress) (*backup.Manifest, error) {
			return backup.Restore(cmd.Context(), t, args[1], p)
		})
	})
	s3 = bucketFlags(cmd.Flags())
	cmd.Flags().StringVarP(&c.output, "output", "o", "table", "table, or json for scripts")
	return cmd
}
