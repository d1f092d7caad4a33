// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/roquetmq/roquet/internal/client"
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
			c, err := client.New(client.Config{Server: address, Timeout: 3 * time.Second})
			if err != nil {
				return err
			}
			text, _, err := c.Do(cmd.Context(), http.MethodGet, "/readyz", nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&address, "addr", address, "host:port of any of the server's listeners")
	return cmd
}
