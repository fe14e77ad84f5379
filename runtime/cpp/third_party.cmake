# What libxformc contains of other projects, as two targets to link:
#   xformc_sentencepiece   #include <sentencepiece_processor.h>
#   xformc_json            #include <nlohmann/json.hpp>
# pip downloads their sources, checked by their hashes, into the build folder. Without a network, give the folders.
set(XFORMC_SENTENCEPIECE_SOURCE "" CACHE PATH "SentencePiece 0.2.1's folder with CMakeLists.txt; downloaded if empty")
set(XFORMC_JSON_SOURCE "" CACHE PATH "nlohmann_json 3.12's folder with nlohmann/json.hpp; downloaded if empty")

# Sets `folder` to the unpacked file of a package, downloading it if the build folder does not have it.
function(xformc_download folder package version file hash)
  set(here ${PROJECT_BINARY_DIR}/third_party)
  set(unpacked ${here}/${package}-${version})
  if(EXISTS ${here}/${file})
    file(SHA256 ${here}/${file} found)
  endif()
  if(NOT "${found}" STREQUAL "${hash}")
    find_package(Python 3 REQUIRED COMPONENTS Interpreter)
    message(STATUS "Downloading ${package} ${version}")
    file(WRITE ${here}/${package}.txt "${package}==${version} --hash=sha256:${hash}\n")
    if(file MATCHES "\\.whl$")
      set(form --only-binary)
    else()
      set(form --no-binary)
    endif()
    execute_process(
      COMMAND ${Python_EXECUTABLE} -m pip --disable-pip-version-check download --quiet --no-deps --require-hashes
        ${form} ${package} --dest ${here} --requirement ${here}/${package}.txt
      RESULT_VARIABLE failed)
    if(failed OR NOT EXISTS ${here}/${file})
      message(FATAL_ERROR "pip could not download ${package} ${version}. Without a network, unpack it yourself "
        "and give its folder by XFORMC_SENTENCEPIECE_SOURCE or XFORMC_JSON_SOURCE")
    endif()
    file(REMOVE_RECURSE ${unpacked})
  endif()
  if(NOT EXISTS ${unpacked})
    file(ARCHIVE_EXTRACT INPUT ${here}/${file} DESTINATION ${unpacked}.partial)
    file(RENAME ${unpacked}.partial ${unpacked})
  endif()
  set(${folder} ${unpacked} PARENT_SCOPE)
endfunction()

# A function, so that these settings are SentencePiece's alone. Only its processor is built, and nothing installed.
function(xformc_add_sentencepiece)
  set(source ${XFORMC_SENTENCEPIECE_SOURCE})
  if(NOT source)
    xformc_download(folder sentencepiece 0.2.1 sentencepiece-0.2.1.tar.gz
      8138cec27c2f2282f4a34d9a016e3374cd40e5c6e9cb335063db66a0a3b71fad)
    set(source ${folder}/sentencepiece-0.2.1/sentencepiece)
  endif()
  if(NOT EXISTS ${source}/src/sentencepiece_processor.h)
    message(FATAL_ERROR "no src/sentencepiece_processor.h in ${source}")
  endif()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.18)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
  set(SPM_ENABLE_SHARED OFF)
  set(SPM_ENABLE_TCMALLOC OFF)
  add_subdirectory(${source} ${PROJECT_BINARY_DIR}/third_party/build EXCLUDE_FROM_ALL)
  target_compile_options(sentencepiece-static PRIVATE -w)
  # It asks for libatomic on ARM, which 64-bit processors do not need.
  set_target_properties(sentencepiece-static PROPERTIES INTERFACE_LINK_LIBRARIES Threads::Threads)
  add_library(xformc_sentencepiece INTERFACE)
  target_include_directories(xformc_sentencepiece SYSTEM INTERFACE
    ${source}/src ${source}/src/builtin_pb ${source}/third_party/protobuf-lite)
  target_link_libraries(xformc_sentencepiece INTERFACE sentencepiece-static)
  install(FILES ${source}/LICENSE DESTINATION ${licenses} RENAME sentencepiece)
  foreach(part absl darts_clone protobuf-lite)
    install(FILES ${source}/third_party/${part}/LICENSE DESTINATION ${licenses} RENAME ${part})
  endforeach()
endfunction()

function(xformc_add_json)
  set(source ${XFORMC_JSON_SOURCE})
  if(NOT source)
    xformc_download(folder nlohmann_json 3.12.0 nlohmann_json-3.12.0-py3-none-any.whl
      5f6132720fb25d0d70bf0742f8397b49a540dcc193e7312a914f6aa49f054810)
    set(source ${folder}/nlohmann_json/include)
    set(license ${folder}/nlohmann_json-3.12.0.dist-info/licenses/LICENSE)
    install(FILES ${license} DESTINATION ${licenses} RENAME nlohmann_json)
  endif()
  if(NOT EXISTS ${source}/nlohmann/json.hpp)
    message(FATAL_ERROR "no nlohmann/json.hpp in ${source}")
  endif()
  add_library(xformc_json INTERFACE)
  target_include_directories(xformc_json SYSTEM INTERFACE ${source})
endfunction()

include(GNUInstallDirs)
set(licenses ${CMAKE_INSTALL_DATADIR}/licenses/xformc)
find_package(Threads REQUIRED)
xformc_add_sentencepiece()
xformc_add_json()
