package moe

import "math"

var negInf = math.Inf(-1)

func sqrt(x float64) float64 { return math.Sqrt(x) }
