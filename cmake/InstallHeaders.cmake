# The public headers as they are installed: volta.h and every header that it reaches. Installed, they include one
# another as "volta/base/result.h", so that a program needs no other include directory than
# <prefix>/include, and no name of Volta's can meet another library's.
# Writes them, for `cmake --install`, from VOLTA_SOURCE (the folder src) to VOLTA_HEADERS.
cmake_policy(VERSION 3.25)  # Scripts of an installation begin without policies.
file(REMOVE_RECURSE "${VOLTA_HEADERS}")
set(waiting volta.h)
set(done "")
while(waiting)
  list(POP_FRONT waiting header)
  list(APPEND done "${header}")
  file(READ "${VOLTA_SOURCE}/${header}" text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.+)\"" "\\1" name "${include}")
    if(NOT EXISTS "${VOLTA_SOURCE}/${name}")
      message(FATAL_ERROR "${header} includes \"${name}\", which is not below src")
    endif()
    if(NOT name IN_LIST done AND NOT name IN_LIST waiting)
      list(APPEND waiting "${name}")
    endif()
  endforeach()
  string(REGEX REPLACE "#include \"" "#include \"volta/" text "${text}")
  file(WRITE "${VOLTA_HEADERS}/volta/${header}" "${text}")
endwhile()
