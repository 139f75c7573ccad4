package event_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/harness-engine/harness-engine/engine/event"
)

func BenchmarkHubFanOut(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newScene(b, event.HubOptions{})
			defer s.hub.Close()
			s.say(b, started, opened)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var wg sync.WaitGroup
			reached := make([]chan int64, n)
			for i := range n {
				reached[i] = make(chan int64, 1)
				sub := s.hub.Subscribe("run_1", 2)
				wg.Go(func() {
					for {
						d, err := sub.Next(ctx, 256)
						if err != nil {
							return
						}
						reached[i] <- d.Through
					}
				})
			}
			one := batch(delta("some tokens of text "))
			for b.Loop() {
				out, err := s.w.Append(ctx, one)
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					for <-reached[i] < out[0].Sequence {
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/delivery")
			cancel()
			wg.Wait()
		})
	}
}
