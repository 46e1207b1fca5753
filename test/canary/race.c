/* Must fail under ThreadSanitizer: proves that a data race in a stress program is reported. */
#include <pthread.h>
#include <stdio.h>

static int shared;

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100000; i++)
		shared++;
	return NULL;
}

int main(void)
{
	pthread_t a, b;

	if (pthread_create(&a, NULL, count, NULL) != 0 ||
	    pthread_create(&b, NULL, count, NULL) != 0)
		return 0; /* no race happened: the caller takes success for the failure it is */
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("%d\n", shared);
	return 0;
}
