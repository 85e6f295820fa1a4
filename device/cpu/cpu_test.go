package cpu_test

import (
	"testing"

	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
)

func TestConformance(t *testing.T) { devicetest.Run(t, cpu.New(), devicetest.Module(testmodule.Image)) }
