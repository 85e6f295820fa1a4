package futex

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// A sleeper is woken by whoever changes the word.
func TestWaitWake(t *testing.T) {
	var word, woken atomic.Uint32
	addr := (*uint32)(unsafe.Pointer(&word))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for word.Load() == 0 {
			Wait(addr, 0, time.Minute)
		}
		woken.Store(1)
	}()
	word.Store(1)
	for woken.Load() == 0 {
		Wake(addr)
		runtime.Gosched()
	}
	<-done
}

func TestReturnsWhenTheWordDiffers(t *testing.T) {
	var word atomic.Uint32
	Wait((*uint32)(unsafe.Pointer(&word)), 1, time.Hour)
	Nap((*uint32)(unsafe.Pointer(&word)), 1, time.Hour)
}

// The garbage collector can stop a goroutine that only yields, or naps.
func TestCanBeStopped(t *testing.T) {
	var word atomic.Uint32
	for name, pause := range map[string]func(){
		"yield": Yield,
		"nap":   func() { Nap((*uint32)(unsafe.Pointer(&word)), 0, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			var stop atomic.Bool
			begun, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				close(begun)
				for !stop.Load() {
					pause()
				}
			}()
			<-begun
			runtime.GC()
			stop.Store(true)
			for ended := false; !ended; { // one that hasn't laid itself down when it's called is called again
				select {
				case <-done:
					ended = true
				case <-time.After(time.Millisecond):
					Wake((*uint32)(unsafe.Pointer(&word)))
				}
			}
		})
	}
}
