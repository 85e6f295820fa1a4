package cpu_test

import (
	"testing"

	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/device/devicetest"
)

func TestConformance(t *testing.T) { devicetest.Run(t, cpu.New()) }
