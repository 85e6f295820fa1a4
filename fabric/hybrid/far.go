package hybrid

import (
	"context"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/tcp"
)

// checkFar checks the options of the fabric between hosts.
func checkFar(options map[string]string) error { return tcp.CheckOptions(options) }

// openFar opens the fabric between hosts over the matcher of both.
func openFar(ctx context.Context, c fabric.Config, m *fabric.Matcher) (fabric.Fabric, error) {
	f, err := tcp.Open(ctx, c, m)
	if err != nil {
		return nil, err // and no interface that holds a nil
	}
	return f, nil
}
