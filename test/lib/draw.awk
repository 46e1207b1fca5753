# Random numbers, the same with every awk. The caller sets state, from 1, and draws a few to begin with.
# draw(n): 0 to n - 1. gaussian(): mean 0, deviation 1, from twelve draws. pods_header(): the columns of
# openb's pods.
function draw(n) {
	state = (state * 16807) % 2147483647
	return int(state / 2147483647 * n)
}
function gaussian(   i, s) {
	for (i = 0; i < 12; i++)
		s += draw(1000000) / 1000000
	return s - 6
}
function pods_header() {
	print "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase," \
		"creation_time,deletion_time,scheduled_time"
}
