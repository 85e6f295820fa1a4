from chorus.bench.command import main

main()  # elsewhere, so that the ranks' processes can find what they run
