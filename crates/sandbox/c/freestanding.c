/* Functions for guests without libc. Compilers generate calls of the first four. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    if ((uintptr_t)to <= (uintptr_t)from)
        return memcpy(to, from, bytes);
    while (bytes--)
        ((uint8_t *)to)[bytes] = ((const uint8_t *)from)[bytes];
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = (uint8_t)value;
    return to;
}

int memcmp(const void *left, const void *right, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        int difference = ((const uint8_t *)left)[i] - ((const uint8_t *)right)[i];
        if (difference)
            return difference;
    }
    return 0;
}

/* Beyond 2^52 a double has no fraction. */
double trunc(double x) { return x > -0x1p52 && x < 0x1p52 ? (double)(int64_t)x : x; }

double floor(double x)
{
    double whole = trunc(x);
    return whole > x ? whole - 1 : whole;
}

double ceil(double x)
{
    double whole = trunc(x);
    return whole < x ? whole + 1 : whole;
}

float truncf(float x) { return (float)trunc(x); }
float floorf(float x) { return (float)floor(x); }
float ceilf(float x) { return (float)ceil(x); }

#ifdef __wasm__
__attribute__((import_module("env"), import_name("pc_host"))) uint64_t pc_host(uint32_t, uint32_t, const void *, uint32_t,
                                                                            void *, uint32_t, uint64_t);
/* Never called: keeps the import in a guest without host calls, so that every guest has the same interface. */
uint64_t pc_keep(void) { return pc_host(0, 0, 0, 0, 0, 0, 0); }
#endif
