/* Feeds files, or every file below a directory, to a fuzz target: the corpus becomes a regression
 * test that needs no libFuzzer. Usage: program PATH... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *what, const char *path)
{
	fprintf(stderr, "cannot %s %s\n", what, path);
	exit(2);
}

static void feed_file(const char *path, size_t size)
{
	uint8_t *data = malloc(size > 0 ? size : 1); /* exact size: ASan sees a read past the end */
	FILE *f = fopen(path, "rb");

	if (data == NULL || f == NULL || fread(data, 1, size, f) != size)
		die("read", path);
	fclose(f);
	fprintf(stderr, "%s\n", path); /* the last line before a crash names the input */
	LLVMFuzzerTestOneInput(data, size);
	free(data);
}

static int feed_path(const char *path);

static int feed_dir(const char *path)
{
	struct dirent **names;
	int n = scandir(path, &names, NULL, alphasort), fed = 0;

	if (n < 0)
		die("list", path);
	for (int i = 0; i < n; i++) {
		char *child = NULL;

		if (names[i]->d_name[0] != '.') {
			if (asprintf(&child, "%s/%s", path, names[i]->d_name) < 0)
				die("name", path);
			fed += feed_path(child);
			free(child);
		}
		free(names[i]);
	}
	free(names);
	return fed;
}

static int feed_path(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		die("find", path);
	if (S_ISDIR(st.st_mode))
		return feed_dir(path);
	feed_file(path, (size_t)st.st_size);
	return 1;
}

int main(int argc, char **argv)
{
	int fed = 0;

	for (int i = 1; i < argc; i++)
		fed += feed_path(argv[i]);
	printf("%d inputs\n", fed);
	return fed > 0 ? 0 : 1;
}
