package actors

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestWorkersOutliveTurnsAndEndWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workers
		var ran sync.WaitGroup
		for range workersIdleMax + 10 { // all at once: none waits for another
			ran.Add(1)
			w.Schedule(func() { time.Sleep(time.Second); ran.Done() })
		}
		began := time.Now()
		ran.Wait()
		require.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		require.Len(t, w.idle, workersIdleMax)

		w.Schedule(func() { ran.Add(1) })
		synctest.Wait()
		require.Len(t, w.idle, workersIdleMax)
		w.Schedule(func() { time.Sleep(time.Second); ran.Add(-1) })
		w.close()
		ran.Wait()
		ran.Add(1)
		w.Schedule(ran.Done) // a late message still gets its turn
		ran.Wait()
		require.Empty(t, w.idle)
	})
	goleak.VerifyNone(t)
}
