/* The version that every program prints. */
#ifndef TESSERA_BASE_VERSION_H
#define TESSERA_BASE_VERSION_H

#define TESSERA_VERSION "0.1.0"

#endif
