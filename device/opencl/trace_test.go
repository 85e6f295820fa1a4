//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"bytes"
	"context"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// A stream gets a queue that keeps times when a trace needs one. Earlier work comes first all the same.
func TestTraceOfABusyStream(t *testing.T) {
	for name, o := range map[string]opencl.Options{"shared": {}, "buffers": {Buffers: true}} {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			tr := d.(driver.Tracer)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			const n = 1 << 16
			s, err := d.StreamCreate(0, 0)
			must(err)
			var p [2]driver.Ptr
			for i := range p {
				p[i], err = d.Malloc(0, n)
				must(err)
			}
			host, err := d.MallocHost(n)
			must(err)
			goOn := make(chan struct{})
			must(d.HostFunc(s, "waits", func() error { <-goOn; return nil }))
			must(d.Fill(s, p[0], 1, n))
			must(tr.TraceStart())
			must(d.Copy(s, p[1], p[0], n, driver.DeviceToDevice))
			must(d.Fill(s, p[0], 2, n))
			must(d.Copy(s, host, p[1], n, driver.DeviceToHost))
			close(goOn)
			must(d.StreamSynchronize(context.Background(), s))
			list, err := tr.TraceStop()
			must(err)
			if got := unsafe.Slice(*(**byte)(unsafe.Pointer(&host)), n); !bytes.Equal(got, bytes.Repeat([]byte{1}, n)) {
				t.Error("the copies and fills ran in another order")
			}
			var ran []driver.ActivityKind
			for _, a := range list {
				if a.Kind != driver.ActivityRuntime {
					ran = append(ran, a.Kind)
					if a.End.Before(a.Start) || a.Stream != s || a.Bytes != n {
						t.Errorf("%+v", a)
					}
				}
			}
			if len(ran) != 3 || ran[0] != driver.ActivityCopy || ran[1] != driver.ActivityFill {
				t.Errorf("the trace has %v", ran)
			}
			must(d.StreamDestroy(s))
			must(d.Free(0, p[0]))
			must(d.Free(0, p[1]))
			must(d.FreeHost(host))
		})
	}
}
