package sys

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// A thread that changes the word wakes the sleeper.
func TestWaitWake(t *testing.T) {
	var word, woken atomic.Uint32
	addr := (*uint32)(unsafe.Pointer(&word))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for word.Load() == 0 {
			FutexWait(addr, 0, time.Minute)
		}
		woken.Store(1)
	}()
	word.Store(1)
	for woken.Load() == 0 {
		FutexWake(addr)
		runtime.Gosched()
	}
	<-done
}

func TestWaitReturnsWhenTheWordDiffers(t *testing.T) {
	var word atomic.Uint32
	FutexWait((*uint32)(unsafe.Pointer(&word)), 1, time.Hour)
}

// The garbage collector can stop a goroutine that only yields.
func TestYieldCanBeStopped(t *testing.T) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			Yield()
		}
	}()
	runtime.GC()
	stop.Store(true)
	<-done
}
