// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/service"
)

// verifyCommand checks a store that no process has open.
func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every checksum of a stopped store and that index and log agree",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return service.Verify(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
}

// healthCommand asks a running server; it is the health check of images, where no shell and no curl exist.
func healthCommand() *cobra.Command {
	defaults := config.New()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(defaults.Listen.HTTPPort))
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running server whether it is ready; exit status 0 if so",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			return askReady(ctx, address, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&address, "addr", address, "host:port of any of the server's listeners")
	return cmd
}

func askReady(ctx context.Context, address string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no server answers at %s: %w", address, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("read the answer of %s: %w", address, err)
	}
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", text)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}
