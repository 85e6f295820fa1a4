package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/cache/memviz"
	"github.com/chorus-comms/chorus/internal/sys"
)

func newMemvizCmd() *cobra.Command {
	var options memviz.Options
	var output string
	cmd := &cobra.Command{
		Use:   "memviz SNAPSHOT",
		Short: "Draw a snapshot of device memory as a timeline",
		Long: `Draw what a device's caching allocator did as an SVG picture: each allocation is a rectangle at its address, from its
beginning to its end, in front of the memory that was reserved from the driver.

The snapshot is JSON: what cache.Snapshot writes, or json.dump of PyTorch's torch.cuda.memory._snapshot(). It shows what the
allocator did if its history was recorded.`,
		Example: `  chorus memviz snapshot.json -o memory.svg`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := sys.OpenRegular(args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			defer f.Close()
			s, err := cache.ReadSnapshot(f)
			if err != nil {
				return err
			}
			var picture bytes.Buffer
			if err := memviz.Draw(&picture, s, options); err != nil {
				return err
			}
			if output != "" {
				return os.WriteFile(output, picture.Bytes(), 0o666)
			}
			_, err = picture.WriteTo(cmd.OutOrStdout())
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&output, "output", "o", "", "file to write; empty: standard output")
	fs.IntVar(&options.Device, "device", 0, "device to draw")
	fs.BoolVar(&options.Time, "time", false, "draw over time, not over the numbers of events")
	return cmd
}
