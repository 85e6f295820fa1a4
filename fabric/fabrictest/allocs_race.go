//go:build race

package fabrictest

import "testing"

func testAllocs(t *testing.T, _ *suite) { t.Skip("the race detector allocates") }
