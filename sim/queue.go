package sim

// task is what happens at a time.
type task struct {
	at  int64
	seq int // tasks of one time go in the order in which they were made
	do  func()
}

func (t task) before(o task) bool { return t.at < o.at || t.at == o.at && t.seq < o.seq }

// queue is a binary heap of tasks. container/heap would box each of them.
type queue struct{ tasks []task }

func (q *queue) push(t task) {
	q.tasks = append(q.tasks, t)
	for i := len(q.tasks) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.tasks[i].before(q.tasks[up]) {
			return
		}
		q.tasks[i], q.tasks[up] = q.tasks[up], q.tasks[i]
		i = up
	}
}

func (q *queue) pop() task {
	first, last := q.tasks[0], len(q.tasks)-1
	q.tasks[0] = q.tasks[last]
	q.tasks[last] = task{}
	q.tasks = q.tasks[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && q.tasks[down].before(q.tasks[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		q.tasks[i], q.tasks[least] = q.tasks[least], q.tasks[i]
		i = least
	}
}
