# Random numbers, the same with every awk. The caller sets state, from 1, and draws a few to begin with.
# draw(n): 0 to n - 1. gaussian(): mean 0, deviation 1, from twelve draws.
function draw(n) {
	state = (state * 16807) % 2147483647
	return int(state / 2147483647 * n)
}
function gaussian(   i, s) {
	for (i = 0; i < 12; i++)
		s += draw(1000000) / 1000000
	return s - 6
}
